package httplimit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/limit"
)

const idleShare = 8

// Idle returns a ConnState function that limits connections without a request to 1/8 of the files
// that the process may open. Beyond that it closes the oldest one of the client or network with
// most.
func Idle() func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	idle := limit.NewTable[net.Conn, struct{}](max(1, disk.Files()/idleShare), 0)
	return func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state != http.StateNew && state != http.StateIdle {
			idle.Delete(c)
			return
		}
		from, _ := netip.ParseAddrPort(c.RemoteAddr().String()) // zero for other addresses
		gone, _ := idle.Displace(c, limit.Client(from.Addr()), 0, struct{}{})
		for _, o := range gone {
			_ = o.Key.Close()
		}
	}
}
