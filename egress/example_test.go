package egress_test

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

func ExampleDialer_Check() {
	d, err := egress.NewDialer(egress.Config{
		Allow:    []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")},
		OwnNames: []graspsync.HostPort{{Host: "grasp.example.com", Port: 443}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []string{"https://10.7.0.1:8080", "https://10.8.0.1", "https://grasp.example.com/x.git", "http://example.com"} {
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		if err != nil {
			fmt.Println(err)
			continue
		}
		err = d.Check(u)
		fmt.Println(s, err == nil, errors.Is(err, egress.ErrOwn), err)
	}
	// Output:
	// https://10.7.0.1:8080 true false <nil>
	// https://10.8.0.1 false false address not allowed: 10.8.0.1 is not public, and no exception allows it
	// https://grasp.example.com/x.git false true address not allowed: own listener: grasp.example.com:443
	// http://example.com false false plaintext not allowed by AllowPlaintext of egress.Config: http
}
