package explain

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

//go:embed sentences.txt
var source string

var sentences = template.Must(template.New("").Funcs(template.FuncMap{
	"at": graspsync.TimeText, "future": time.Time.After, // bound to the time of the answer by sentencesOf
	"first": first, "id": eventName, "reason": reason, "failed": failed, "unsynced": unsynced, "few": few, "needs": newNeeds, "membersFirst": membersFirst,
	"repo": repoName, "npub": npub, "plural": plural, "text": printable, "trouble": Trouble, "hasPrefix": strings.HasPrefix,
}).Parse(source))

type view struct {
	*Explanation
	Status relaysync.Status
}

func sentencesOf(now time.Time, name string, data any) []string {
	t := template.Must(sentences.Clone()).Funcs(template.FuncMap{
		"at":     func(when time.Time) string { return graspsync.TimeText(when, now) },
		"future": now.Before,
	})
	var out strings.Builder
	if err := t.ExecuteTemplate(&out, name, data); err != nil {
		return []string{"The answer could not be written: " + err.Error()}
	}
	return slices.DeleteFunc(strings.Split(out.String(), "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
}

const (
	named   = 5
	maxText = 2000 // bytes of an error or reason
)

func few(list any) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, min(v.Len(), named)).Interface()
}

func printable(s string) string { return graspsync.PrintableAtMost(s, maxText) }

func first(kind string, is relaysync.StateCode, name any, why string) string {
	return fmt.Sprintf(answers[kind+" "+string(is)][2], name, why)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func npub(key graspsync.PubKey) string {
	if key == (graspsync.PubKey{}) {
		return ""
	}
	return nip34.NPub(key)
}

func repoName(ref graspsync.RepoRef) string {
	return graspsync.Printable(nip34.NPub(ref.Owner) + "/" + ref.Identifier)
}

func eventName(s *relaysync.EventState) string {
	if s.Event != nil && s.Event.Kind > 0 {
		return fmt.Sprintf("Event %s (kind %d)", s.ID, s.Event.Kind)
	}
	return "Event " + s.ID.String()
}

func reason(s *relaysync.EventState) string {
	if s.Reason+s.Detail == "" {
		return "there is no record of the reason"
	}
	return printable(graspsync.Verdict{Reason: s.Reason, Detail: s.Detail}.Message())
}

func failed(st relaysync.Status) string {
	if st.StoreError == "" {
		return ""
	}
	return " (the last attempt failed: " + printable(st.StoreError) + ")"
}

func unsynced(all []relaysync.RelayStatus) []relaysync.RelayStatus {
	return slices.DeleteFunc(slices.Clone(all), func(r relaysync.RelayStatus) bool { return r.Synced })
}

// needs is the git data that the events of a repository need.
type needs struct {
	purgatory.DataState
	Waits            bool // an event waits for the objects
	OnlyAnnouncement bool // no other event waits
	Soft             bool // an expired announcement can be revived
	Unnamed          int  // missing objects without a sentence
}

// newNeeds returns the needs of a repository. waits is set for the needs of a waiting event.
func newNeeds(s purgatory.DataState, waits bool) needs {
	n := needs{DataState: s, Waits: waits, OnlyAnnouncement: len(s.Waiting) > 0, Unnamed: len(s.Missing) - named + s.More}
	for _, e := range s.Waiting {
		soft := e.Is == purgatory.IsSoft
		n.Waits, n.Soft = n.Waits || !soft, n.Soft || soft
		n.OnlyAnnouncement = n.OnlyAnnouncement && e.Class == "announcement"
	}
	return n
}

// membersFirst sorts held events of members first, because strangers could hide these events.
func membersFirst(all []purgatory.EventState, st *relaysync.RepoStatus) []purgatory.EventState {
	strangers := func(e purgatory.EventState) int {
		if st != nil && slices.ContainsFunc(st.Maintainers, func(m nip34.Person) bool {
			return m.Key == e.Author && (m.Kind == nip34.Root || m.Kind == nip34.Member)
		}) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b purgatory.EventState) int { return strangers(a) - strangers(b) })
}
