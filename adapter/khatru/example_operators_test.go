package khatruadapter_test

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/adapter/explain"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/internal/doctest"
)

// The status page of a relay, and its metrics.
func Example_operators() {
	operators := func(syncer *khatruadapter.Sync) (http.Handler, *prometheus.Registry, error) {
		metrics := prometheus.NewRegistry()
		metrics.MustRegister(syncer.Collector("ngit"))
		why := explain.Explainer{Sync: syncer.Manager()}
		page, err := statuspage.New(statuspage.Config{
			Name: "grasp.example.com", Sync: syncer.Manager(),
			Explain: why.Explain,
		})
		return page, metrics, err
	}
	_ = operators
}

func TestReadmeShowsTheOperators(t *testing.T) {
	doctest.ContainsCode(t, "README.md", "example_operators_test.go", "\tmetrics := ", "\t\treturn page")
}
