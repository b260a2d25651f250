package khatruadapter_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/internal/doctest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// operators returns the status page of a relay that syncs, with explanations and metrics. It asks
// for no password, so serve it on loopback only.
func operators(syncer *khatruadapter.Sync) (http.Handler, error) {
	why := explain.Explainer{Sync: syncer.Manager()}
	page, err := statuspage.New(statuspage.Config{
		Name: "grasp.example.com", Sync: syncer.Manager(),
		Explain: why.Explain,
	})
	if err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(syncer.Collector("ngit"))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/", page)
	return mux, nil
}

// A status page and metrics for the operator of a relay that syncs, at an address of its own. It
// ends with the relay, and the relay ends if the address is in use.
func Example_operators() {
	serve := func(ctx context.Context, syncer *khatruadapter.Sync, door *gate.Gate) error {
		mux, err := operators(syncer)
		if err != nil {
			return err
		}
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, func(ctx context.Context) error {
			return gate.ListenAndServe(ctx, "127.0.0.1:7335", mux, syncer.Run)
		})
	}
	_ = serve
}

// The page explains an event in any spelling and serves metrics.
func TestOperators(t *testing.T) {
	relay, db := khatru.NewRelay(), &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	syncer, err := khatruadapter.Open(relay, db, "grasp.example.com", t.TempDir())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- syncer.Run(ctx) }()
	defer func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, syncer.Close())
	}()
	<-syncer.Manager().Ready()
	alice := relaytest.NewKey("alice")
	announcement := alice.Hosted(gonostr.Now()-9, "repo", "wss://grasp.example.com")
	parsed, err := graspsync.ParseEvent(announcement)
	require.NoError(t, err)
	event, err := nostrlib.ToEvent(parsed)
	require.NoError(t, err)
	_, err = relay.AddEvent(ctx, event) // as a client does
	require.NoError(t, err)

	mux, err := operators(syncer)
	require.NoError(t, err)
	ask := func(path string) string {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		return w.Body.String()
	}
	require.Contains(t, ask("/explain?q="+announcement.ID), "is stored and served")
	require.Eventually(t, func() bool {
		return strings.Contains(ask("/explain?q="+alice.Npub()+"/repo"), "is hosted here")
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, ask("/explain?q=wss://nobody.example"), "is not followed")
	require.Contains(t, ask("/metrics"), "ngit_sync_")
}

// The README contains the function above.
func TestReadmeShowsTheOperators(t *testing.T) {
	doctest.ContainsCode(t, "../README.md", "example_operators_test.go", "\twhy := ", "\tif err")
}
