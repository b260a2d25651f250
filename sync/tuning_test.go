package sync

import (
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

// Every negative number must be rejected. Otherwise nothing validates the field.
func TestEachNumberIsBounded(t *testing.T) {
	doctest.Bounded(t, Config{}.withDefaults(), Config.withDefaults, Config.validate)
}
