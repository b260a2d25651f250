// Package porttest finds ports for tests whose servers must know their address before they listen, or
// listen at it again after a restart.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Address returns an address on loopback at which a server can listen, and at the port after it. The port is
// below those that the system gives to outgoing connections (from 32768 on Linux), because one of these may
// be taken while the server does not listen. Until the test ends no other test gets it, of this process or of
// another: sockets for UDP at the same ports say that they are taken.
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

// reserved reports whether nobody had this port, which is the test's now.
func reserved(t testing.TB, port int) bool {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	mark, err := net.ListenPacket("udp", addr) //nolint:noctx // it does not wait
	if err != nil {
		return false
	}
	t.Cleanup(func() { _ = mark.Close() })
	l, err := net.Listen("tcp", addr) //nolint:noctx // it is closed before anybody can wait
	if err != nil {
		return false
	}
	return l.Close() == nil
}
