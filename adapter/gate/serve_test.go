package gate_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
)

// A program that was stopped by a signal logged an error, because the context of a signal has a cause
// of its own.
func TestServeEndsWithItsContext(t *testing.T) {
	stopped := errors.New("terminated")
	for name, of := range map[string]func(context.Context) error{"error": context.Context.Err, "cause": context.Cause} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ctx, stop := context.WithCancelCause(t.Context())
			require.NoError(t, gate.Serve(ctx, listener, http.NotFoundHandler(), func(ctx context.Context) error {
				stop(stopped)
				<-ctx.Done()
				return of(ctx)
			}))
		})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, gate.Serve(t.Context(), listener, http.NotFoundHandler(), func(context.Context) error { return stopped }), stopped)
}
