package front

import (
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/limit"
)

// idlePart is the part of the files that the process may open which connections without a request may be.
const idlePart = 8

// Idle returns a ConnState of a server that closes connections on which nothing was asked yet or nothing is asked any more, when they
// are an eighth of the files that the process may open: the oldest of the client or network that has most.
func Idle() func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	idle := limit.NewTable[net.Conn, struct{}](max(1, disk.Files()/idlePart), 0)
	return func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state != http.StateNew && state != http.StateIdle {
			idle.Delete(c)
			return
		}
		from, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // zero if it is no network address
		gone, _ := idle.Displace(c, limit.Client(from.Addr()), 0, struct{}{})
		for _, o := range gone {
			_ = o.Key.Close()
		}
	}
}
