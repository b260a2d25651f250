package wstransport

import (
	"testing"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
}

func TestEachNumberIsBounded(t *testing.T) {
	doctest.Bounded(t, Config{Dialer: &egress.Dialer{}}.withDefaults(), Config.withDefaults, Config.validate, "ReadBudget")
}
