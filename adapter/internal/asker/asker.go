// Package asker stores in a context the client for which stored events are read.
package asker

import (
	"context"

	"github.com/graspsync/graspsync/limit"
)

type key struct{}

type asker struct {
	client     limit.Stranger
	disconnect func()
}

// For returns a context for reads of a client. disconnect is called if others wait for the memory of its
// unread answer.
func For(ctx context.Context, client limit.Stranger, disconnect func()) context.Context {
	return context.WithValue(ctx, key{}, asker{client, disconnect})
}

// Of returns the client of ctx, or the zero Stranger if there is none.
func Of(ctx context.Context) limit.Stranger {
	a, _ := ctx.Value(key{}).(asker)
	return a.client
}

// Disconnect disconnects the client of ctx, if there is one.
func Disconnect(ctx context.Context) {
	if a, _ := ctx.Value(key{}).(asker); a.disconnect != nil {
		a.disconnect()
	}
}
