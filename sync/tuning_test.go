package sync

import (
	"reflect"
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

// numbers returns the fields of a struct that are numbers or durations.
func numbers(v any) map[string]int64 {
	out := make(map[string]int64)
	r := reflect.ValueOf(v)
	for i := range r.NumField() {
		if f := r.Field(i); f.CanInt() {
			out[r.Type().Field(i).Name] = f.Int()
		}
	}
	return out
}

// Every negative number must be rejected. Otherwise nothing validates the field.
func TestEachNumberIsBounded(t *testing.T) {
	doctest.Bounded(t, Config{}.withDefaults(), Config.withDefaults, Config.validate)
}
