// Package asker stores in a context the client for which stored events are read.
package asker

import (
	"context"

	"github.com/graspsync/graspsync/limit"
)

type key struct{}

// For returns a context for reads of a client.
func For(ctx context.Context, client limit.Stranger) context.Context {
	return context.WithValue(ctx, key{}, client)
}

// Of returns the client of ctx, or the zero Stranger if there is none.
func Of(ctx context.Context) limit.Stranger {
	client, _ := ctx.Value(key{}).(limit.Stranger)
	return client
}
