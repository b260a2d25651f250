package grasp_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/internal/doctest"
)

// operators serves the status page, metrics and signed commands of the owner (NIP-86). Page and metrics
// have no password, so use an address that only the operator can reach.
func operators(server *grasp.Server, owner graspsync.PubKey) (http.Handler, error) {
	commands, err := admin.New(server.Control(), admin.Config{
		Owners: []graspsync.PubKey{owner}, URLs: []string{"http://127.0.0.1:7335"},
	})
	if err != nil {
		return nil, err
	}
	page, err := statuspage.New(statuspage.Config{
		Name: "grasp.example.com", Sync: server.Sync().Manager(), Purgatory: server.Purgatory(),
		Ready: server.Ready, Explain: server.Explain,
	})
	if err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(server.Collector("ngit"))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/", commands.Middleware(page))
	return mux, nil
}

// The server and its page have separate addresses. Both end together.
func Example_operators() {
	serve := func(ctx context.Context, server *grasp.Server, owner graspsync.PubKey) error {
		mux, err := operators(server, owner)
		if err != nil {
			return err
		}
		return gate.ListenAndServe(ctx, "127.0.0.1:7335", mux, func(ctx context.Context) error {
			return server.ListenAndServe(ctx, "127.0.0.1:3334")
		})
	}
	_ = serve
}

func TestReadmeShowsTheOperators(t *testing.T) {
	doctest.ContainsCode(t, "README.md", "example_operators_test.go", "func operators(", "\n// ")
	doctest.ContainsCode(t, "README.md", "example_operators_test.go", "\tmux, err := ", "\t}\n\t_ = serve")
}
