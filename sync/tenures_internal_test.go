package sync

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// After a restart owners who came yesterday were equal to those of years.
func TestTenuresAreKept(t *testing.T) {
	var k, again tenureKeeper
	var list []plan.Tenure
	for i := range 2*tenuresChunk + 1 {
		list = append(list, plan.Tenure{Owner: graspsync.PubKey{byte(i >> 8), byte(i)}, Since: time.Unix(int64(1_700_000_000+i), 0)})
	}
	k.set(list)
	before := k.Export()
	assert.Len(t, before, 3)
	again.Import(before)
	assert.Equal(t, list, again.restored)
	assert.Equal(t, before, again.Export(), "before the plan knows anybody")
	k.set(append(list, plan.Tenure{Owner: graspsync.PubKey{255}, Since: time.Unix(1_800_000_000, 0)}))
	assert.Equal(t, before[:2], k.Export()[:2], "who comes changes the last chunk")
	again.Import([][]byte{nil, []byte("short"), before[2], append(before[2], 1)})
	assert.Len(t, again.restored, 2)
}

// found is a connection of which the address is known.
type found struct {
	Conn
	at netip.Addr
}

// Traffic implements [Conn].
func (f found) Traffic() Traffic { return Traffic{RemoteAddr: f.at} }

func TestPlaceOfARelay(t *testing.T) {
	for at, place := range map[string]string{
		"198.51.100.7": "198.51.100.0/24", "::ffff:198.51.100.7": "198.51.100.0/24", "2001:db8:1:2::3": "2001:db8:1::/48",
		"127.0.0.1": "", "10.1.2.3": "", "::1": "", "fe80::1%eth0": "", "fd00::1": "",
	} {
		c := &conn{conn: found{at: netip.MustParseAddr(at)}}
		got := ""
		if p := c.place(); p.IsValid() {
			got = p.String()
		}
		assert.Equal(t, place, got, fmt.Sprint(at))
	}
	assert.False(t, (&conn{conn: found{}}).place().IsValid())
}
