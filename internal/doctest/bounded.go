package doctest

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var groups = []string{"Times", "Limits"}

// Bounded checks each signed number of a configuration, also in groups: withDefaults keeps a set
// value, and validate refuses a negative value by name. withDefaults may raise the fields in
// derived.
func Bounded[C any](t *testing.T, good C, withDefaults func(C) C, validate func(C) error, derived ...string) {
	t.Helper()
	require.NoError(t, validate(good))
	numbers := 0
	each(&good, func(name string, at func(*C) reflect.Value) {
		numbers++
		cfg := good
		at(&cfg).SetInt(-1)
		err := validate(cfg)
		require.Error(t, err, "%s is negative", name)
		require.Regexp(t, `\b`+name+`\b`, err.Error())
		var empty C
		at(&empty).SetInt(7)
		full := withDefaults(empty)
		for _, d := range derived {
			if d == name {
				return
			}
		}
		require.EqualValues(t, 7, at(&full).Int(), "%s: what is set stays", name)
	})
	require.NotZero(t, numbers)
}

// AcceptsOne checks that validate accepts 1 for each signed number of a configuration.
func AcceptsOne[C any](t *testing.T, good C, validate func(C) error) {
	t.Helper()
	each(&good, func(name string, at func(*C) reflect.Value) {
		cfg := good
		at(&cfg).SetInt(1)
		require.NoError(t, validate(cfg), name)
	})
}

func each[C any](of *C, f func(name string, at func(*C) reflect.Value)) {
	walk := func(group reflect.Type, in func(*C) reflect.Value) {
		for i := range group.NumField() {
			if in(of).Field(i).CanInt() {
				f(group.Field(i).Name, func(c *C) reflect.Value { return in(c).Field(i) })
			}
		}
	}
	whole := func(c *C) reflect.Value { return reflect.ValueOf(c).Elem() }
	walk(whole(of).Type(), whole)
	for _, name := range groups {
		if g := whole(of).FieldByName(name); g.IsValid() {
			walk(g.Type(), func(c *C) reflect.Value {
				g := whole(c).FieldByName(name)
				return reflect.NewAt(g.Type(), unsafe.Pointer(g.UnsafeAddr())).Elem() // the field may be unexported
			})
		}
	}
}
