package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/state"
)

// reboots is an Operator with one command. A GRASP server uses the Control of package control.
type reboots struct{}

func (reboots) Commands() []string { return []string{"reboot"} }

func (reboots) Do(_ context.Context, _, command string, args ...string) (any, error) {
	return "will " + command + " in " + strings.Join(args, " "), nil
}

// An owner sends a command to a server. Commands by other keys are refused.
func Example() {
	front := httptest.NewUnstartedServer(http.NotFoundHandler())
	url := "http://" + front.Listener.Addr().String()
	owner, err := graspsync.ParsePubKey("f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9")
	if err != nil {
		panic(err)
	}
	handler, err := admin.New(reboots{}, admin.Config{Owners: []graspsync.PubKey{owner}, URLs: []string{url}, State: state.NewMemory()})
	if err != nil {
		panic(err)
	}
	front.Config.Handler = handler.Middleware(front.Config.Handler)
	front.Start()
	defer front.Close()

	for _, key := range []string{ownerKey, strangerKey} {
		result, err := admin.Client{URL: url, Key: key}.Do(context.Background(), "reboot", "an hour")
		fmt.Println(string(result), err)
	}
	// Output:
	// "will reboot in an hour" <nil>
	//  the server says: not by an owner of this server
}
