// Package asker carries through a context which client a stored event is read for.
package asker

import (
	"context"

	"github.com/graspsync/graspsync/limit"
)

type key struct{}

// For returns a context of reads for a client.
func For(ctx context.Context, client limit.Stranger) context.Context {
	return context.WithValue(ctx, key{}, client)
}

// Of returns the client that ctx reads for, or the zero Stranger if none is known.
func Of(ctx context.Context) limit.Stranger {
	client, _ := ctx.Value(key{}).(limit.Stranger)
	return client
}
