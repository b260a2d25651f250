package sync

import (
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	cfg := Config{}.withDefaults()
	doctest.Defaults(t, "config.go", cfg)
	doctest.Defaults(t, "tuning.go", cfg.Tuning)
}
