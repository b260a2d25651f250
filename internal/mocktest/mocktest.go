// Package mocktest creates gomock mocks that answer every call.
package mocktest

import (
	"reflect"
	"slices"

	"go.uber.org/mock/gomock"
)

// Quiet returns a mock whose methods can be called any number of times and return zero values, or
// functions that do nothing. An expectation replaces this default.
func Quiet[M any](t gomock.TestReporter, newMock func(*gomock.Controller) M) M {
	ctrl := gomock.NewController(t, gomock.WithOverridableExpectations())
	mock := newMock(ctrl)
	for method, value := range reflect.ValueOf(mock).Methods() {
		if method.Name == "EXPECT" {
			continue
		}
		typ := value.Type()
		var answers []any
		for out := range typ.Outs() {
			answer := reflect.Zero(out)
			if out.Kind() == reflect.Func {
				answer = reflect.MakeFunc(out, func([]reflect.Value) []reflect.Value { return nil })
			}
			answers = append(answers, answer.Interface())
		}
		ctrl.RecordCallWithMethodType(mock, method.Name, typ, slices.Repeat([]any{gomock.Any()}, typ.NumIn())...).Return(answers...).AnyTimes()
	}
	return mock
}
