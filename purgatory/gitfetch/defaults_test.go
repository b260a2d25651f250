package gitfetch

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
}

// Every number of a configuration has a bound, and what is beyond it is named.
func TestEachNumberIsBounded(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		field := typ.Field(i)
		if !slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64}, field.Type.Kind()) {
			continue
		}
		for value, wrong := range map[int64]bool{-1: true, 1: false} {
			cfg := Config{Dialer: &egress.Dialer{}}.withDefaults()
			reflect.ValueOf(&cfg).Elem().Field(i).SetInt(value)
			if err := cfg.validate(); wrong {
				require.ErrorContains(t, err, field.Name+" is ")
			} else {
				require.NoError(t, err, field.Name)
			}
		}
		cfg := Config{}
		reflect.ValueOf(&cfg).Elem().Field(i).SetInt(7)
		require.EqualValues(t, 7, reflect.ValueOf(cfg.withDefaults()).Field(i).Int(), "%s: what is set stays", field.Name)
	}
}
