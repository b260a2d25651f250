package health

import (
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
}

func TestEachNumberIsBounded(t *testing.T) {
	doctest.Bounded(t, Config{}.withDefaults(), Config.withDefaults, Config.validate)
}
