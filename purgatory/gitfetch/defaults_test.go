package gitfetch

import (
	"testing"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
}

// Every number of a configuration has a bound, and what is beyond it is named.
func TestEachNumberIsBounded(t *testing.T) {
	good := Config{Dialer: &egress.Dialer{}}.withDefaults()
	doctest.Bounded(t, good, Config.withDefaults, Config.validate)
	doctest.OneWillDo(t, good, Config.validate)
}
