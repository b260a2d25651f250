package purgatory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// panicking is a fetcher with a bug that one server provokes.
type panicking struct {
	*fetchtest.Fake
	host string
}

func (f panicking) Quarantine(ctx context.Context, dir string) (purgatory.Quarantine, error) {
	q, err := f.Fake.Quarantine(ctx, dir)
	return panickingQuarantine{q, f.host}, err
}

type panickingQuarantine struct {
	purgatory.Quarantine
	host string
}

func (q panickingQuarantine) Fetch(ctx context.Context, from egress.URL, ids []nip34.ObjectID) (int64, error) {
	if from.Authority.Host == q.host {
		panic("odd answer")
	}
	return q.Quarantine.Fetch(ctx, from, ids)
}

// A bug that a server's answer provokes ended the process.
func TestPromiseP38_PanicCostsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.fetcher = panicking{w.git, "bad.example"}
		w.start()
		w.git.Serve(clone("good.example/r.git"), serving(1))
		w.relay.put(announce(alice, now()-500, "bad.example/r.git", "good.example/r.git"))
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(10 * time.Minute)
		require.True(t, w.relay.has(state))
		require.NotZero(t, w.p.Status().Panics)
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}
