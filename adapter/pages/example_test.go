package pages_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/graspsync/graspsync/adapter/pages"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// A page of a repository whose README tries to run a script.
func Example() {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	if err != nil {
		panic(err)
	}
	store := &events{}
	site := pages.New(pages.Config{
		Identity: identity, Store: store, Announced: store.announced,
		About: func() pages.About { return pages.About{Name: "grasp.example.com"} },
	})
	w := httptest.NewRecorder()
	site.Repository(w, httptest.NewRequest(http.MethodGet, "/npub1x/demo.git", nil), gitserve.View{
		ReadmeName: "README.md", Readme: []byte("# Demo\n<script>alert(1)</script>\n"),
	})
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "<pre># Demo\n"), strings.Contains(w.Body.String(), "<script"))
	// Output: 200 true false
}
