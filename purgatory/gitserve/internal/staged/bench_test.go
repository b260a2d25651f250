package staged_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve/internal/staged"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const crowd = 10_000

// crowded is a book that is full of uploads of so many networks to so many repositories.
func crowded(networks, repos int) (book *staged.Book, refs []graspsync.RepoRef) {
	book = staged.New(staged.Limits{Hold: time.Hour, All: crowd * staged.Least, PerRepo: crowd * staged.Least, PerClient: crowd * staged.Least})
	refs = make([]graspsync.RepoRef, repos)
	for i := range refs {
		refs[i] = relaytest.NewKey(fmt.Sprint(i)).Ref("x")
	}
	for i := range crowd {
		book.Put(staged.Upload{
			Name: fmt.Sprint(i), Repo: refs[i%repos], Client: fmt.Sprint(i % networks), Bytes: staged.Least,
			Tips: map[graspsync.EventID]nip34.ObjectID{event(i): {}}, Since: began,
		})
	}
	return book, refs
}

// intrude is a push that another one must give way to.
func intrude(tb testing.TB, book *staged.Book, refs []graspsync.RepoRef, i int) {
	g, err := book.Begin(refs[i%len(refs)], fmt.Sprint("honest", i), []graspsync.EventID{event(i)})
	if err != nil || len(book.Displaced()) != 1 {
		tb.Fatal("nothing has made room", err)
	}
	book.Left(g)
	book.Keep(g, staged.Upload{Name: fmt.Sprint(i), Tips: map[graspsync.EventID]nip34.ObjectID{event(i): {}}, Since: began})
}

// To find out who gives way took 33 ms where 10,000 uploads of 5,000 networks lie, and all
// who push wait for that.
func TestToGiveWayTakesNoTime(t *testing.T) {
	book, refs := crowded(crowd/2, 1)
	start := time.Now()
	for i := range 200 {
		intrude(t, book, refs, crowd+i)
	}
	took := time.Since(start)
	t.Logf("%v each", took/200)
	if took > 2*time.Second {
		t.Fatal(took)
	}
}

// BenchmarkDisplace is one push that another one must give way to, where 10,000 lie here.
func BenchmarkDisplace(b *testing.B) {
	for _, networks := range []int{2, 100, crowd / 2} {
		for _, repos := range []int{1, 1000} {
			b.Run(fmt.Sprintf("networks=%d/repos=%d", networks, repos), func(b *testing.B) {
				book, refs := crowded(networks, repos)
				i := crowd
				for b.Loop() {
					intrude(b, book, refs, i)
					i++
				}
			})
		}
	}
}
