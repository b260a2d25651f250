package gitfetch_test

import (
	"testing"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/doctest"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", gitfetch.Config{}.WithDefaults())
}

// Every number of a configuration has a limit, and errors name it.
func TestEachNumberIsBounded(t *testing.T) {
	good := gitfetch.Config{Dialer: &egress.Dialer{}}.WithDefaults()
	doctest.Bounded(t, good, gitfetch.Config.WithDefaults, gitfetch.Config.Validate)
	doctest.AcceptsOne(t, good, gitfetch.Config.Validate)
}
