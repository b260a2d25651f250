package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/wire"
)

func TestParseInfo(t *testing.T) {
	full := wire.Info{
		Name: "A relay", Software: "https://example.com/soft", NIPs: []int{1, 11, 77},
		MaxMessageLength: 131072, MaxSubscriptions: 20, MaxFilters: 10, MaxLimit: 500, MaxSubIDLength: 64, AuthRequired: true,
	}
	tests := []struct {
		name, doc string
		want      wire.Info
	}{
		{"empty", ``, wire.Info{}},
		{"not JSON", `<html>`, wire.Info{}},
		{"no object", `[{"name":"x"}]`, wire.Info{}},
		{"empty object", `{}`, wire.Info{}},
		{"full", `{"name":"A relay","description":"d","pubkey":null,"supported_nips":[1,11,77],"software":"https://example.com/soft",
			"limitation":{"max_message_length":131072,"max_subscriptions":20,"max_filters":10,"max_limit":500,"max_subid_length":64,
			"auth_required":true,"min_pow_difficulty":0,"x":{"y":[1]}},"retention":[{"kinds":[0,[5,7]],"time":null}],"fees":{"a":[{"unit":"msats"}]}}`, full},
		{"everything as strings", "\xef\xbb\xbf" + ` {"name":"A relay","supported_nips":["1"," 11 ","77"],"software":"https://example.com/soft",
			"limitation":{"max_message_length":"131072","max_subscriptions":"20","max_filters":"10","max_limit":"500","max_subid_length":"64","auth_required":"true"}}`, full},
		{"numbers as floats", `{"supported_nips":[1.0,7.7e1,1.5,-3,0,"5A",true,null,[4],{"n":5}],
			"limitation":{"max_message_length":1.31072e5,"max_limit":500.5,"max_filters":-1,"max_subscriptions":1e99,"auth_required":1}}`,
			wire.Info{NIPs: []int{1, 77}, MaxMessageLength: 131072, AuthRequired: true}},
		{"wrong types", `{"name":7,"software":["x"],"supported_nips":"1,11","limitation":[{"max_limit":5}]}`, wire.Info{}},
		{"wrong types within", `{"limitation":{"max_limit":[500],"max_filters":{"a":1},"max_subscriptions":true,"max_subid_length":null,
			"auth_required":[true],"max_message_length":"lots"}}`, wire.Info{}},
		{"not required", `{"limitation":{"auth_required":false}}`, wire.Info{}},
		{"zero says nothing", `{"limitation":{"max_limit":0,"max_message_length":0}}`, wire.Info{}},
		{"a length that fits no request", `{"limitation":{"max_message_length":511}}`, wire.Info{}},
		{"the smallest length", `{"limitation":{"max_message_length":512}}`, wire.Info{MaxMessageLength: 512}},
		{"last one wins", `{"name":"a","name":"b","supported_nips":[1],"supported_nips":[2],"limitation":{"max_limit":1,"max_limit":"x"}}`,
			wire.Info{Name: "b", NIPs: []int{2}}},
		{"breaks off", `{"name":"a","supported_nips":[1,11,7`, wire.Info{}},
		{"long name", `{"name":"` + strings.Repeat("x", 1000) + `"}`, wire.Info{Name: strings.Repeat("x", 300)}},
		{"long number", `{"limitation":{"max_limit":` + strings.Repeat("1", 1000) + `,"max_filters":"` + strings.Repeat("1", 1000) + `"}}`, wire.Info{}},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, wire.ParseInfo([]byte(tt.doc)), tt.name)
	}
}

func TestParseInfoBounds(t *testing.T) {
	var nips []string
	for i := range 1000 {
		nips = append(nips, fmt.Sprint(i+1))
	}
	info := wire.ParseInfo([]byte(`{"supported_nips":[` + strings.Join(nips, ",") + `]}`))
	assert.Len(t, info.NIPs, 256)
}
