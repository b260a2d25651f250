package khatruadapter

import (
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "khatru.go", Config{}.withDefaults())
}
