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
	for _, of := range []func(*Config) reflect.Value{
		func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() },
		func(c *Config) reflect.Value { return reflect.ValueOf(&c.fixed).Elem() },
	} {
		typ := of(&Config{}).Type()
		for i := range typ.NumField() {
			field := typ.Field(i)
			if !slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64}, field.Type.Kind()) {
				continue
			}
			for value, wrong := range map[int64]bool{-1: true, 1: false} {
				cfg := Config{Dialer: &egress.Dialer{}}.withDefaults()
				of(&cfg).Field(i).SetInt(value)
				if err := cfg.validate(); wrong {
					require.ErrorContains(t, err, field.Name+" is ")
				} else {
					require.NoError(t, err, field.Name)
				}
			}
			cfg := Config{}
			of(&cfg).Field(i).SetInt(7)
			cfg = cfg.withDefaults()
			require.EqualValues(t, 7, of(&cfg).Field(i).Int(), "%s: what is set stays", field.Name)
		}
	}
}
