// Package porttest finds ports for tests whose servers need to know their address before they
// listen.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Address returns a loopback address with a free port, whose next port is free too. It is below the
// range of outgoing connections (from 32768 on Linux), which could take it. UDP sockets at the same
// ports reserve them for this test.
func Address(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := 12_000 + 2*rand.IntN(10_000)
		if reserved(t, port) && reserved(t, port+1) {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	t.Fatal("no port is free")
	return ""
}

func reserved(t testing.TB, port int) bool {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	mark, err := net.ListenPacket("udp", addr) //nolint:noctx // it does not wait
	if err != nil {
		return false
	}
	t.Cleanup(func() { _ = mark.Close() })
	// Without a listener, which processes that other tests start would have open until they run.
	c, err := net.Dial("tcp", addr) //nolint:noctx // loopback refuses at once
	if err == nil {
		_ = c.Close()
	}
	return err != nil
}
