package egress_test

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// proxied counts the connections to the proxy that all proxy variables of the environment name. They
// are set for all tests, because net/http reads them once per process.
var proxied atomic.Int64

func TestMain(m *testing.M) {
	proxy, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		if err := os.Setenv(name, "http://"+proxy.Addr().String()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	go func() { // until the process ends
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			proxied.Add(1)
			_ = conn.Close()
		}
	}()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
