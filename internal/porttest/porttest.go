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
// be taken while the server does not listen.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := 12_000 + rand.IntN(20_000)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		first, err := net.Listen("tcp", addr) //nolint:noctx // it is closed before anybody can wait
		if err != nil {
			continue
		}
		second, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1)) //nolint:noctx // the same
		_ = first.Close()
		if err == nil {
			_ = second.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
