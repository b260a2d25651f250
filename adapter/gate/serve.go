package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/graspsync/graspsync/internal/httplimit"
)

const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	endingTime = 2 * time.Second // for open requests at the end
)

// ListenAndServe is [Serve] at an address such as "127.0.0.1:3334".
func ListenAndServe(ctx context.Context, address string, handler http.Handler, run func(context.Context) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return Serve(ctx, listener, handler, run)
}

// Serve serves handler and runs run, until ctx ends or one of both returns. Connections have timeouts
// for headers, bodies and idling. At the end open requests have 2 s; [Gate.Close] closes websockets
// afterwards. Serve closes the listener and returns after run, with its error or that of serving, or
// nil if ctx has ended.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, run func(context.Context) error) error {
	server := &http.Server{Handler: httplimit.Bodies(handler, bodyBy), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, ConnState: httplimit.Idle()}
	working, stop := context.WithCancel(ctx)
	defer stop()
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() {
		defer stop() // a server that cannot be reached need not run
		served <- server.Serve(listener)
	}()
	go func() {
		defer stop()
		ran <- run(working)
	}()
	<-working.Done()
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), endingTime)
	defer done()
	if err := server.Shutdown(ending); err != nil {
		_ = server.Close() // closes the remaining connections
	}
	failed := <-ran
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	if end := ctx.Err(); end != nil && (errors.Is(failed, end) || errors.Is(failed, context.Cause(ctx))) {
		return nil
	}
	return failed
}
