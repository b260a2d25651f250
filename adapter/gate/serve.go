package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/graspsync/graspsync/internal/front"
)

const (
	// headerTime is how long a request's header may take to come, idleTime how long a connection may
	// be left unused.
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	// endingTime is how long requests under way may take once all is to end.
	endingTime = 2 * time.Second
)

// ListenAndServe is [Serve] at an address, such as "127.0.0.1:3334".
func ListenAndServe(ctx context.Context, address string, handler http.Handler, run func(context.Context) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return Serve(ctx, listener, handler, run)
}

// Serve serves handler to clients that can't keep a connection without using it, and runs what the
// server does by itself, until ctx ends, which is no error, or one of both ends. Requests under way
// have 2 s then; websockets are hung up by [Gate.Close], which is to be called after it. It closes
// the listener, and returns when run has returned: with its error, unless that is why ctx ended.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, run func(context.Context) error) error {
	server := &http.Server{Handler: front.Bodies(handler, bodyBy), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, ConnState: front.Idle()}
	working, stop := context.WithCancel(ctx)
	defer stop()
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() {
		defer stop() // what nobody can reach need not run
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
		_ = server.Close() // what is left is given up
	}
	failed := <-ran
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	if failed != nil && ctx.Err() != nil && errors.Is(failed, context.Cause(ctx)) {
		return nil
	}
	return failed
}
