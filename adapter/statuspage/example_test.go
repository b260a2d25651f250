package statuspage_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A page of a manager, below a path of the operator's server.
func Example() {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	if err != nil {
		log.Fatal(err)
	}
	manager, err := relaysync.New(memstore.New(), relaytest.NewNetwork(), identity, relaysync.Config{})
	if err != nil {
		log.Fatal(err)
	}
	page, err := statuspage.New(statuspage.Config{
		Name: "grasp.example.com", Sync: manager, Explain: explain.Explainer{Sync: manager}.Explain,
		Links: []statuspage.Link{{Text: "Metrics", Href: "../metrics"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/status/", http.StripPrefix("/status", page))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/status/", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Code, strings.Contains(string(body), "Reading what is stored"))
	// Output: 200 true
}
