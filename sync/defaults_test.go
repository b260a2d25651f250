package sync

import (
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
}
