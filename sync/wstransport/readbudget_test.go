package wstransport_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// largest is a NOTICE of about the size of the largest message.
func largest(size int) []byte {
	const around = len(`["NOTICE",""]`)
	return []byte(`["NOTICE","` + strings.Repeat("x", size-around) + `"]`)
}

// A hundred relays send the largest message concurrently, and its end later. Memory stays within the
// budget, and each message arrives.
func TestPromiseP20_ReadBudget(t *testing.T) {
	racetest.Amounts(t)
	const relays = 100
	message := largest(2<<20 + 4<<10)
	u := rawServer(t, func(p peer) {
		for range 2 {
			_, _ = p.Write(header(fin|opText, uint64(len(message))))
			_, _ = p.Write(message[:len(message)-1])
			<-time.After(100 * time.Millisecond) // real time: that of the sockets
			if _, err := p.Write(message[len(message)-1:]); err != nil {
				return
			}
		}
		p.wait()
	})
	transport := newTransport(t, func(c *wstransport.Config) { c.Fixed().PingTimeout = time.Minute })
	base, peak := liveHeap(), int64(0)
	done := make(chan struct{})
	var sampler, readers sync.WaitGroup
	sampler.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond): // real time: the memory of real sockets
				peak = max(peak, min(liveHeap(), liveHeap())) // a slow collection counts what it sees allocated
			}
		}
	})
	for range relays {
		c := dial(t, transport, u)
		readers.Go(func() {
			for range 2 {
				_, err := c.Receive(t.Context())
				assert.NoError(t, err)
			}
			assert.NoError(t, c.Close())
		})
	}
	readers.Wait()
	close(done)
	sampler.Wait()
	assert.Less(t, (peak-base)>>20, int64(80), "all at once it is over 110")
}

// A relay that stalls within a large message must not keep the budget from others.
func TestPromiseP20_StalledMessageIsCut(t *testing.T) {
	message := largest(1 << 20)
	stalls := rawServer(t, func(p peer) {
		_, _ = p.Write(header(fin|opText, uint64(len(message))))
		_, _ = p.Write(message[:len(message)/2])
		p.wait()
	})
	honest := rawServer(t, func(p peer) {
		_, _ = p.Write(header(fin|opText, uint64(len(message))))
		_, _ = p.Write(message)
		p.wait()
	})
	transport := newTransport(t, func(c *wstransport.Config) {
		c.ReadBudget, c.Fixed().PingTimeout, c.Fixed().PingInterval = 1, 4*time.Second, time.Hour // room for one
	})
	bad := dial(t, transport, stalls)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { assert.ErrorContains(t, receiveError(t, bad), "stalls within a message") })
	for range 3 {
		good := dial(t, transport, honest)
		m := receive(t, good)
		assert.Len(t, m.Text, graspsync.MaxText, "texts are cut")
		require.NoError(t, good.Close())
	}
}

// P10: requests contain nothing that identifies this server, and a request for credentials is a
// failure.
func TestPromiseP10_NoCredentials(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusProxyAuthRequired} {
		var mu sync.Mutex
		var asked []*http.Request
		u := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, r)
			w.Header().Set("Www-Authenticate", `Basic realm="x"`)
			w.Header().Set("Proxy-Authenticate", `Basic realm="x"`)
			http.SetCookie(w, &http.Cookie{Name: "tracked", Value: "yes"})
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "who are you?")
		})
		transport := newTransport(t)
		for range 2 {
			_, err := transport.Dial(testContext(t), u)
			var answer *wstransport.StatusError
			require.ErrorAs(t, err, &answer)
			assert.Equal(t, status, answer.Status)
		}
		mu.Lock()
		require.Len(t, asked, 2, "no second try with credentials")
		for _, r := range asked {
			for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Referer", "Origin", "From"} {
				assert.Empty(t, r.Header.Values(name), name)
			}
		}
		mu.Unlock()
	}
}

// Relays that sent large messages slowly held the budget for minutes. With 14 of them, no large message
// of another relay arrived within 15 seconds.
func TestPromiseP37_TrickledMessagesGiveWay(t *testing.T) {
	racetest.Amounts(t)
	message, big := largest(2<<20), largest(300<<10)
	trickles := rawServer(t, func(p peer) {
		_, _ = p.Write(header(fin|opText, uint64(len(message))))
		_, _ = p.Write(message[:200<<10])
		for rest := message[200<<10:]; len(rest) > 0; {
			n := min(17<<10, len(rest))
			if _, err := p.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
			<-time.After(time.Second) // real time: that of the sockets
		}
	})
	honest := rawServer(t, func(p peer) {
		_, _ = p.Write(header(fin|opText, uint64(len(big))))
		_, _ = p.Write(big)
		p.wait()
	})
	transport := newTransport(t, func(c *wstransport.Config) { c.ReadBudget = 8 << 20 }) // three at a time
	for range 40 {
		c := dial(t, transport, trickles)
		go func() { _, _ = c.Receive(testContext(t)) }()
	}
	began := time.Now()
	// Another host than that of the others.
	m := receive(t, dial(t, transport, relayURL(t, strings.Replace(honest.String(), "127.0.0.1", "localhost", 1))))
	assert.Len(t, m.Text, graspsync.MaxText)
	took := time.Since(began)
	assert.Less(t, took, 30*time.Second, "60 if they are left alone")
}
