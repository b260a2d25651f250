package gitfetch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

const (
	// fewPacks and fewRefs are worth no work: a reader does not notice them.
	fewPacks = 8
	fewRefs  = 64
	// geometry is how many times the objects of the next smaller pack a pack must have,
	// or they become one. So there are never more than some of them, and each object is
	// written again only as often as its pack doubles.
	geometry = 2
	// maxShared is how many packs stay as they are because another repository has them too:
	// the largest. The others are like our own, though that takes room.
	maxShared = 16
	// pruneEvery is the least time between two looks at all objects of a repository. It
	// is longer for one where that takes long: at most one part in pruneShare of the time
	// goes there.
	pruneEvery = 7 * 24 * time.Hour
	pruneShare = 100
	// swapMost bounds how long the lock is held to have old packs go.
	swapMost = 20 * time.Second
	// lateRounds is how often that is packed without the lock which was named meanwhile:
	// what is left to be done under it is what came in the moment of the last time.
	lateRounds = 3
	// leftAfter is how old a file must be that nobody finishes any more. No push, fetch or
	// repack leaves one alone for as long.
	leftAfter = time.Hour
	// upkeepNice is the priority of what is not waited for.
	upkeepNice = 10
)

// upkeep is the maintenance of one repository.
type upkeep struct {
	// set by upkeeps, read-only
	git      *program
	disk     *storage
	objects  *objectReader
	unshared *copies // of packs that another repository has as well
	claims   *claims
	packed   func(name string) // for tests, nil otherwise: which pack was made

	how  purgatory.Maintenance
	free func() // gives the folder up; nil: it is not claimed
	dir  string // of the repository, as it was at first
	id   int    // bytes of an id
	now  time.Time
	done purgatory.Maintained

	// what there was when it began
	packs  []packFile // those that may go
	kept   []string   // packs that are kept from garbage collection; their names
	size   int64      // of all packs
	marked int64      // of those that we keep, for what has just come and may have no name any more
	loose  int        // objects with a file of their own
	tips   []nip34.ObjectID
	named  []nip34.ObjectID // by logs and by events that wait

	unpaid bool // a pack stays though not all of it is named
}

// packFile is one pack of a repository.
type packFile struct {
	base    string // its name without extension
	objects int
	size    int64
	cruft   bool // it has what nothing named when it was made
	shared  bool // another repository has it as well: to write it anew would take room twice
	linked  bool // and it came here from there, so that it is for us to say who pays
}

// diary is what is kept beside a repository of its maintenance. To lose it costs a look
// at all objects.
type diary struct {
	Began time.Time     `json:"began"` // when all objects were looked at last, or were to be
	Took  time.Duration `json:"took"`
	State string        `json:"state"` // a hash of packs and refs, afterwards
}

const diaryName = "graspsync-maintenance"

func (u *upkeep) run(ctx context.Context) error {
	var book diary
	prune := false
	err := u.locked(ctx, func(ctx context.Context) (err error) {
		if err := u.begin(ctx); err != nil {
			return err
		}
		book, prune, err = u.due(ctx)
		if err == nil && prune {
			err = u.survey(ctx)
		}
		return err
	})
	if u.free != nil {
		defer u.free()
	}
	switch {
	case err != nil:
		return err
	case prune:
		return u.prune(ctx, book)
	}
	return u.roll(ctx)
}

// locked does something under the lock of the repository, which must be where it was.
func (u *upkeep) locked(ctx context.Context, do func(ctx context.Context) error) error {
	dir, unlock, err := u.how.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if u.dir == "" {
		if u.free, err = u.claims.claim(dir); err != nil {
			return err
		}
		u.dir = dir
	}
	if dir != u.dir {
		return fmt.Errorf("%w: it has moved", purgatory.ErrInUse)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, swapMost, errLong)
	defer cancel()
	err = do(ctx)
	u.done.Locked = max(u.done.Locked, time.Since(began))
	return err
}

var errLong = errors.New("it would be locked for too long")

// begin removes what was left, has loose refs become few, and looks at the packs.
func (u *upkeep) begin(ctx context.Context) error {
	format, err := u.objects.format(ctx, u.dir)
	if err != nil {
		return err
	}
	u.id = 20
	if format == nip34.SHA256 {
		u.id = 32
	}
	_, err = unlock(u.disk.files, u.dir, staleAfter, staleAfter)
	if err := errors.Join(err, sweepObjects(u.disk.files, u.dir, u.now)); err != nil {
		return fmt.Errorf("sweeping: %w", err)
	}
	if u.how.Prune { // who has something wait for ever would have all stay that came for others
		if err := unmark(u.disk.files, u.dir, u.now.Add(-min(leftAfter, u.how.Grace))); err != nil {
			return fmt.Errorf("removing marks: %w", err)
		}
	}
	if u.done.LooseRefs, err = looseRefs(u.disk.files, u.dir); err != nil {
		return err
	}
	if u.done.LooseRefs >= fewRefs || (u.how.Now && u.done.LooseRefs > 0) {
		if _, err := u.child(ctx, nil, "pack-refs", "--all", "--prune"); err != nil {
			return fmt.Errorf("packing refs: %w", err)
		}
		if u.done.LooseRefs, err = looseRefs(u.disk.files, u.dir); err != nil {
			return err
		}
	}
	return u.look()
}

// look lists the packs.
func (u *upkeep) look() error {
	u.packs, u.kept, u.size, u.marked, u.done.Packs = nil, nil, 0, 0, 0
	folder := filepath.Join(u.dir, "objects", "pack")
	entries, err := u.disk.files.ReadDir(folder)
	if err != nil {
		return err
	}
	came, err := linked(u.disk.files, u.dir)
	if err != nil {
		return err
	}
	ours, err := marks(u.disk.files, u.dir)
	if err != nil {
		return err
	}
	names, links := make(map[string]int64), make(map[string]uint64)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // it has just gone
		}
		names[e.Name()] = info.Size()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			links[e.Name()] = uint64(st.Nlink) //nolint:unconvert // it has fewer bits elsewhere
		}
	}
	for name, bytes := range names {
		base, ok := strings.CutSuffix(name, ".idx")
		_, has := names[base+".pack"]
		if !ok || !has {
			continue
		}
		p := packFile{base: base, size: bytes + names[base+".pack"], shared: links[base+".pack"] > 1}
		p.linked = p.shared && came[base]
		_, p.cruft = names[base+".mtimes"]
		u.size += p.size
		u.done.Packs++
		if _, kept := names[base+".keep"]; kept {
			u.kept = append(u.kept, base)
			if slices.Contains(ours, filepath.Join(folder, base)) {
				u.marked += p.size
			}
			continue
		}
		x, err := barerepo.OpenIndex(u.disk.files, filepath.Join(folder, name), u.id)
		if err != nil {
			return err
		}
		p.objects = x.Len()
		x.Close()
		u.packs = append(u.packs, p)
	}
	slices.SortFunc(u.packs, func(a, b packFile) int {
		if a.objects != b.objects {
			return a.objects - b.objects
		}
		return strings.Compare(a.base, b.base)
	})
	u.loose, err = looseObjects(u.disk.files, u.dir, nil)
	return err
}

// due reads the diary, and reports whether all objects are to be looked at.
func (u *upkeep) due(ctx context.Context) (book diary, prune bool, err error) {
	data, err := u.disk.files.ReadFile(filepath.Join(u.dir, diaryName))
	if err == nil {
		err = json.Unmarshal(data, &book)
	}
	if err != nil || book.Began.After(u.now) {
		book = diary{} // there is none, or it is of no use
	}
	if u.how.Now || u.how.Prune {
		return book, true, nil
	}
	if u.now.Sub(book.Began) < max(pruneEvery, pruneShare*book.Took) {
		return book, false, nil
	}
	state, err := u.state(ctx)
	if err != nil {
		return book, false, err
	}
	cruft := slices.ContainsFunc(u.packs, func(p packFile) bool { return p.cruft })
	old, err := u.hasOldLogs()
	if err != nil || cruft || old || state != book.State {
		return book, err == nil, err
	}
	book.Began = u.now
	return book, false, u.write(book)
}

// state is a hash of what decides whether there may be something to prune.
func (u *upkeep) state(ctx context.Context) (string, error) {
	refs, err := u.child(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return "", fmt.Errorf("reading refs: %w", err)
	}
	h := sha256.New()
	h.Write(refs)
	for _, p := range u.packs {
		h.Write([]byte(p.base))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (u *upkeep) write(book diary) error {
	data, err := json.Marshal(book)
	if err != nil {
		return err
	}
	path := filepath.Join(u.dir, diaryName)
	if err := u.disk.files.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return u.disk.files.Rename(path+".new", path)
}

// survey forgets what refs were long ago, and reads all that names objects now.
func (u *upkeep) survey(ctx context.Context) error {
	at := gitTime(u.now.Add(-u.how.Remember))
	if u.how.Now {
		at = "all"
	}
	if _, err := u.child(ctx, nil, "reflog", "expire", "--all", "--expire="+at, "--expire-unreachable="+at); err != nil {
		return fmt.Errorf("expiring logs: %w", err)
	}
	if err := removeEmpty(u.disk.files, filepath.Join(u.dir, "logs")); err != nil {
		return fmt.Errorf("expiring logs: %w", err)
	}
	var err error
	u.tips, u.named, err = u.naming(ctx)
	return err
}

// naming returns what refs point to, and what logs and waiting events name.
func (u *upkeep) naming(ctx context.Context) (tips, named []nip34.ObjectID, err error) {
	out, err := u.child(ctx, nil, "for-each-ref", "--format=%(objectname)")
	if err != nil {
		return nil, nil, fmt.Errorf("reading refs: %w", err)
	}
	ids := make(map[nip34.ObjectID]bool)
	for line := range strings.Lines(string(out)) {
		if id, err := nip34.ParseObjectID(strings.TrimSuffix(line, "\n")); err == nil {
			ids[id] = true
		}
	}
	tips = slices.Collect(maps.Keys(ids))
	logged := make(map[nip34.ObjectID]bool)
	if err := u.logged(logged); err != nil {
		return nil, nil, fmt.Errorf("reading logs: %w", err)
	}
	head, err := u.disk.files.ReadFile(filepath.Join(u.dir, "HEAD"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading HEAD: %w", err)
	}
	if id, err := nip34.ParseObjectID(strings.TrimSpace(string(head))); err == nil { // it is on no branch
		logged[id] = true
	}
	keep, err := u.how.Keep(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range keep {
		logged[id] = true
	}
	for id := range logged {
		if !ids[id] && len(id.String()) == 2*u.id {
			named = append(named, id)
		}
	}
	return tips, named, nil
}

// eachLog calls do for each log of a ref, but for those of events: each is where its event
// says, or was put there by strangers.
func (u *upkeep) eachLog(do func(file *os.File) error) error {
	return walk(u.disk.files, filepath.Join(u.dir, "logs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path == filepath.Join(u.dir, "logs", "refs", "nostr") {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		file, err := u.disk.files.OpenFile(path, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // its ref has just gone: not all of this is done under the lock
		}
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		return do(file)
	})
}

// logged adds the ids in the logs of refs.
func (u *upkeep) logged(to map[nip34.ObjectID]bool) error {
	return u.eachLog(func(file *os.File) error {
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			from, rest, _ := strings.Cut(lines.Text(), " ")
			till, _, _ := strings.Cut(rest, " ")
			for _, text := range []string{from, till} {
				if id, err := nip34.ParseObjectID(text); err == nil && strings.Trim(text, "0") != "" {
					to[id] = true
				}
			}
		}
		return lines.Err()
	})
}

// hasOldLogs reports whether a log begins before what is remembered.
func (u *upkeep) hasOldLogs() (old bool, err error) {
	before := u.now.Add(-u.how.Remember).Unix()
	err = u.eachLog(func(file *os.File) error {
		line, err := bufio.NewReader(file).ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(line, "> ")
		var at int64
		if _, err := fmt.Sscan(rest, &at); err == nil && at < before {
			old = true
			return fs.SkipAll
		}
		return nil
	})
	return old, err
}

// roll makes one pack of the smallest, where there are more than readers should meet.
func (u *upkeep) roll(ctx context.Context) error {
	stay := u.largestShared()
	packs := slices.DeleteFunc(slices.Clone(u.packs), func(p packFile) bool { return p.cruft || stay[p.base] })
	packs = packs[:outOfOrder(packs)]
	if len(packs)+u.loose/fewPacks < fewPacks {
		return nil
	}
	if bytes := linkedBytes(packs); bytes > 0 {
		paid, err := u.pay(ctx, bytes)
		if err != nil {
			return err
		}
		if !paid { // the rest is our own
			packs = slices.DeleteFunc(packs, func(p packFile) bool { return p.linked })
			packs = packs[:outOfOrder(packs)]
			if len(packs)+u.loose/fewPacks < fewPacks {
				return nil
			}
		}
	}
	if err := u.room(packs); err != nil {
		return err
	}
	var in bytes.Buffer
	for _, p := range packs {
		fmt.Fprintf(&in, "%s.pack\n", p.base)
	}
	fresh, err := u.pack(ctx, &in, "--stdin-packs", "--unpacked")
	if err != nil || fresh == "" {
		return err
	}
	all, err := barerepo.OpenIndex(u.disk.files, u.path(fresh+".idx"), u.id)
	if err != nil {
		return err
	}
	defer all.Close()
	for _, p := range packs {
		x, err := barerepo.OpenIndex(u.disk.files, u.path(p.base+".idx"), u.id)
		if err != nil {
			return err
		}
		covered, err := all.Covers(x)
		x.Close()
		if err != nil || !covered {
			return errors.Join(err, fmt.Errorf("%s lacks objects of %s", fresh, p.base))
		}
	}
	return u.locked(ctx, func(ctx context.Context) error { return u.swap(ctx, packs, false, fresh) })
}

// largestShared returns the shared packs that stay as they are while all of them is named.
func (u *upkeep) largestShared() map[string]bool {
	shared := slices.DeleteFunc(slices.Clone(u.packs), func(p packFile) bool { return !p.shared || p.cruft })
	slices.SortStableFunc(shared, func(a, b packFile) int { return cmp.Compare(b.size, a.size) })
	stay := make(map[string]bool)
	for _, p := range shared[:min(len(shared), maxShared)] {
		stay[p.base] = true
	}
	return stay
}

// linkedBytes is how much room it takes to write packs anew that came from elsewhere.
func linkedBytes(packs []packFile) (sum int64) {
	for _, p := range packs {
		if p.linked {
			sum += p.size
		}
	}
	return sum
}

// pay charges the owner of the repository with a copy of what takes no room as it is. Who
// only has to name a pack to have it could fill the disk with it otherwise, a key at a time.
// Whose pack it was pays nothing: he has brought it, and others leave with one copy in all.
func (u *upkeep) pay(ctx context.Context, bytes int64) (paid bool, err error) {
	who, err := payerOf(ctx, u.git, u.disk, u.dir)
	if err != nil {
		return false, err
	}
	_, err = u.unshared.spend(u.now, who, bytes)
	if errors.Is(err, errCopies) {
		return false, nil
	}
	return err == nil, err
}

// outOfOrder returns how many of the packs, the smallest first, are to become one: after
// that each has a multiple of the objects of the next smaller one.
func outOfOrder(packs []packFile) (n int) {
	for n = len(packs); n > 1 && packs[n-1].objects >= geometry*packs[n-2].objects; {
		n--
	}
	if n <= 1 {
		return 0
	}
	sum := 0
	for _, p := range packs[:n] {
		sum += p.objects
	}
	for n < len(packs) && packs[n].objects < geometry*sum {
		sum += packs[n].objects
		n++
	}
	return n
}

// prune makes one pack of all that is named, and another one of the rest that is not old
// enough to go.
func (u *upkeep) prune(ctx context.Context, book diary) error {
	book.Began, book.Took, book.State = u.now, max(book.Took, time.Minute), ""
	if err := u.write(book); err != nil { // a failure must not have it tried anew each time
		return err
	}
	if err := u.room(u.packs); err != nil {
		return err
	}
	if err := u.choose(ctx); err != nil {
		return err
	}
	// What is named and not there with all that it needs keeps nothing: a walk would fail.
	incomplete, _, err := u.objects.missing(ctx, u.dir, "", u.named, nil)
	if err != nil {
		return err
	}
	named := without(u.named, incomplete)
	if err := u.keepShared(ctx, slices.Concat(u.tips, named)); err != nil {
		return err
	}
	keep := make([]string, 0, len(u.kept))
	for _, base := range u.kept {
		keep = append(keep, "--keep-pack="+base+".pack")
	}
	main, err := u.pack(ctx, lines(slices.Concat(u.tips, named)), append([]string{"--revs"}, keep...)...)
	if err != nil {
		return err
	}
	rest, err := u.rest(ctx, main)
	if err != nil {
		return err
	}
	known, fresh := slices.Concat(u.tips, named), []string{main, rest}
	for range lateRounds {
		since, late, err := u.late(ctx, known, fresh...)
		if err != nil {
			return errors.Join(err, u.undo(fresh...))
		}
		if late == "" {
			break
		}
		known, fresh = append(known, since...), append(fresh, late)
	}
	err = u.locked(ctx, func(ctx context.Context) error {
		_, late, err := u.late(ctx, known, fresh...)
		if err != nil {
			return errors.Join(err, u.undo(fresh...))
		}
		if err := u.swap(ctx, u.packs, true, append(fresh, late)...); err != nil {
			return err
		}
		if u.unpaid { // another time
			return nil
		}
		book.State, err = u.state(ctx)
		return err
	})
	if err != nil {
		return err
	}
	u.done.Pruned, u.done.Unnamed = true, u.marked // to find out what of that is named is not worth a walk
	for _, p := range u.packs {
		if p.cruft {
			u.done.Unnamed += p.size
		}
	}
	book.Took = time.Since(u.now)
	return u.write(book)
}

// choose adds what strangers' events name that wait, as far as there is room for it.
func (u *upkeep) choose(ctx context.Context) error {
	if u.how.Choose == nil {
		return nil
	}
	chosen, err := u.how.Choose(ctx, u.dir)
	if err != nil {
		return err
	}
	for _, id := range without(chosen, slices.Concat(u.tips, u.named)) {
		if len(id.String()) == 2*u.id {
			u.named = append(u.named, id)
		}
	}
	return nil
}

// keepShared has packs stay as they are that another repository has as well, if all that is
// in them is named here, and they are not too many; or if nobody pays for a copy.
func (u *upkeep) keepShared(ctx context.Context, named []nip34.ObjectID) error {
	if u.how.Now {
		return nil
	}
	stay := u.largestShared()
	var shared []packFile
	var names []string
	for _, p := range slices.Clone(u.packs) {
		switch {
		case stay[p.base]:
			shared, names = append(shared, p), append(names, p.base)
		case p.linked && !p.cruft: // the smallest first
			if err := u.keepUnlessPaid(ctx, p); err != nil {
				return err
			}
		}
	}
	if len(shared) == 0 {
		return nil
	}
	open, closeAll, err := barerepo.OpenIndexes(u.disk.files, u.path(""), names, u.id)
	defer closeAll()
	if err != nil {
		return err
	}
	has := make([]int, len(shared))
	var failed error
	_, err = u.git.runNow(ctx, child{
		dir: u.dir, stdin: lines(named), nice: true, args: []string{"rev-list", "--objects", "--no-object-names", "--stdin"},
		each: func(line []byte) {
			var id [32]byte
			n, err := hex.Decode(id[:], line[:min(len(line), 2*len(id))])
			for i := 0; i < len(open) && err == nil; i++ {
				var there bool
				if there, err = open[i].Has(id[:n]); there {
					has[i]++
				}
			}
			failed = errors.Join(failed, err)
		},
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("looking for what is shared: %w", err)
	}
	for i, p := range shared {
		switch {
		case has[i] == p.objects:
			u.keep(p)
		case p.linked: // what is not named any more is copied as well, until its grace is over
			if err := u.keepUnlessPaid(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *upkeep) keep(p packFile) {
	u.kept = append(u.kept, p.base)
	u.packs = slices.DeleteFunc(u.packs, func(o packFile) bool { return o.base == p.base })
}

func (u *upkeep) keepUnlessPaid(ctx context.Context, p packFile) error {
	paid, err := u.pay(ctx, p.size)
	if err == nil && !paid {
		u.keep(p)
		u.unpaid = true
	}
	return err
}

// rest makes a pack of what nothing names and is not old enough to go, with what that
// needs. git notes in it how old each object is. It is empty if there is none.
func (u *upkeep) rest(ctx context.Context, main string) (string, error) {
	if u.how.Now || u.how.Grace <= 0 {
		return "", nil
	}
	var in bytes.Buffer
	if main != "" {
		fmt.Fprintf(&in, "%s.pack\n", main)
	}
	for _, base := range u.kept {
		fmt.Fprintf(&in, "%s.pack\n", base)
	}
	for _, p := range u.packs {
		if p.base != main {
			fmt.Fprintf(&in, "-%s.pack\n", p.base)
		}
	}
	return u.pack(ctx, &in, "--cruft", "--cruft-expiration="+gitTime(u.now.Add(-u.how.Grace)))
}

// gitTime is a time as git reads it.
func gitTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 +0000") }

// pack has git make a pack in the repository, and returns its name; empty if there is
// nothing to be in it.
func (u *upkeep) pack(ctx context.Context, in io.Reader, args ...string) (string, error) {
	args = append([]string{"pack-objects", "--delta-base-offset", "--threads=1", "--quiet", "--non-empty"}, args...)
	out, err := u.child(ctx, in, append(args, "objects/pack/pack")...)
	if err != nil {
		return "", fmt.Errorf("packing: %w", err)
	}
	name := strings.TrimSpace(string(out))
	if name == "" {
		return "", nil
	}
	if u.packed != nil {
		u.packed(name)
	}
	return "pack-" + name, nil
}

// child runs git for us, at a low priority and besides those that others wait for.
func (u *upkeep) child(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	return u.git.runNow(ctx, child{dir: u.dir, stdin: in, nice: true, args: args})
}

// room reports whether there is room for another copy of packs.
func (u *upkeep) room(packs []packFile) error {
	free, err := u.disk.free(u.dir)
	if err != nil {
		return fmt.Errorf("looking at the disk: %w", err)
	}
	var more uint64
	for _, p := range packs {
		more += uint64(p.size)
	}
	if free < u.disk.least || free-u.disk.least < more {
		return fmt.Errorf("%w: %d bytes", ErrDisk, free)
	}
	return nil
}

func (u *upkeep) path(name string) string { return filepath.Join(u.dir, "objects", "pack", name) }

// late returns what has been named since the new packs were begun, and makes one more pack
// of it if something of that is in none of the packs which stay: else who names again and
// again what is about to go would have all of it stay. What is known is in them.
func (u *upkeep) late(ctx context.Context, known []nip34.ObjectID, fresh ...string) (since []nip34.ObjectID, pack string, err error) {
	tips, named, err := u.naming(ctx)
	if err != nil {
		return nil, "", err
	}
	named = without(named, known)
	incomplete, _, err := u.objects.missing(ctx, u.dir, "", named, nil)
	if err != nil {
		return nil, "", err
	}
	since = append(without(tips, known), without(named, incomplete)...)
	if len(since) == 0 {
		return nil, "", nil
	}
	var in bytes.Buffer
	for _, id := range since {
		fmt.Fprintf(&in, "%s\n", id)
	}
	for _, id := range known {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	err = u.quiet(ctx, bytes.NewReader(in.Bytes()), fresh)
	if !errors.Is(err, purgatory.ErrInUse) {
		return since, "", err
	}
	pack, err = u.pack(ctx, &in, "--revs")
	return since, pack, err
}

// quiet returns an error that wraps [purgatory.ErrInUse] if something is in none of the packs
// which stay.
func (u *upkeep) quiet(ctx context.Context, since io.Reader, fresh []string) error {
	stay, err := u.staying(fresh)
	if err != nil {
		return err
	}
	defer func() {
		for _, x := range stay {
			x.Close()
		}
	}()
	var lacking error
	_, err = u.git.runNow(ctx, child{
		dir: u.dir, stdin: since, args: []string{"rev-list", "--objects", "--no-object-names", "--stdin"},
		each: func(line []byte) {
			if lacking == nil {
				lacking = hasEach(stay, line)
			}
		},
	})
	return errors.Join(err, lacking)
}

// hasEach returns an error unless an id is in one of the packs.
func hasEach(packs []*barerepo.Index, hexID []byte) error {
	var id [32]byte
	n, err := hex.Decode(id[:], hexID[:min(len(hexID), 2*len(id))])
	if err != nil {
		return err
	}
	for _, x := range packs {
		if has, err := x.Has(id[:n]); err != nil || has {
			return err
		}
	}
	return fmt.Errorf("%w: %s was needed meanwhile", purgatory.ErrInUse, hexID)
}

// staying opens the packs that stay, the new ones first.
func (u *upkeep) staying(fresh []string) (open []*barerepo.Index, err error) {
	goes := make(map[string]bool)
	for _, p := range u.packs {
		goes[p.base+".idx"] = !slices.Contains(fresh, p.base)
	}
	entries, err := u.disk.files.ReadDir(u.path(""))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".idx") || goes[e.Name()] {
			continue
		}
		x, err := barerepo.OpenIndex(u.disk.files, u.path(e.Name()), u.id)
		if err != nil {
			for _, x := range open {
				x.Close()
			}
			return nil, err
		}
		open = append(open, x)
	}
	return open, nil
}

// there reports whether the new packs are in the repository, which may have been removed
// and made anew.
func (u *upkeep) there(fresh ...string) bool {
	for _, base := range fresh {
		for _, ext := range []string{".pack", ".idx"} {
			if _, err := u.disk.files.Lstat(u.path(base + ext)); base != "" && err != nil {
				return false
			}
		}
	}
	return true
}

// swap has old packs go, for which there are new ones on the disk, and with them the
// loose objects that are in packs by now; if prune is set also those that are too old.
func (u *upkeep) swap(ctx context.Context, old []packFile, prune bool, fresh ...string) error {
	if !u.there(fresh...) {
		return fmt.Errorf("%w: it was made anew", purgatory.ErrInUse)
	}
	if err := u.disk.sync(u.path("")); err != nil {
		return err
	}
	was := u.size
	var gone []string
	for _, p := range old {
		if slices.Contains(fresh, p.base) {
			continue
		}
		if _, err := u.disk.files.Lstat(u.path(p.base + ".keep")); errors.Is(err, fs.ErrNotExist) { // or it is somebody's by now
			gone = append(gone, p.base)
		}
	}
	if err := u.drop(gone...); err != nil {
		return err
	}
	if u.loose > 0 {
		if _, err := u.child(ctx, nil, "prune-packed", "--quiet"); err != nil {
			return fmt.Errorf("removing loose objects: %w", err)
		}
	}
	if prune && u.loose > 0 {
		before := u.now.Add(-u.how.Grace)
		if u.how.Now {
			before = u.now
		}
		if _, err := looseObjects(u.disk.files, u.dir, func(path string, at time.Time) error {
			if at.After(before) {
				return nil
			}
			return u.disk.files.Remove(path)
		}); err != nil {
			return fmt.Errorf("removing loose objects: %w", err)
		}
	}
	u.done.Removed += len(gone)
	if err := u.look(); err != nil {
		return err
	}
	u.done.Freed += was - u.size
	return nil
}

// undo removes new packs that were made in vain: all that is in them is in the old ones.
func (u *upkeep) undo(fresh ...string) error {
	return u.drop(slices.DeleteFunc(fresh, func(base string) bool {
		return slices.ContainsFunc(u.packs, func(p packFile) bool { return p.base == base })
	})...)
}

// drop removes packs. Their indexes go first: without it nobody looks into a pack. What
// an operator has made of several packs together goes with them.
func (u *upkeep) drop(bases ...string) error {
	var errs []error
	remove := func(name string) (gone bool) {
		err := u.disk.files.Remove(u.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		errs = append(errs, err)
		return err == nil
	}
	together, err := filepath.Glob(u.path("multi-pack-index*"))
	errs = append(errs, err)
	for _, path := range together {
		remove(filepath.Base(path))
	}
	for _, base := range bases {
		if base == "" {
			continue
		}
		if !remove(base + ".idx") {
			continue // an index without its pack would stay for good
		}
		for _, ext := range []string{".bitmap", ".rev", ".mtimes", ".pack"} {
			remove(base + ext)
		}
	}
	return errors.Join(append(errs, u.disk.sync(u.path("")))...)
}

// sweepObjects removes what a process that was killed has left among the objects: halves
// of packs, and of pushes, and the notes by which these keep packs. It is called with the lock of the repository.
func sweepObjects(on files, dir string, now time.Time) error {
	var errs []error
	left := func(d fs.DirEntry) bool {
		info, err := d.Info()
		return err == nil && now.Sub(info.ModTime()) >= leftAfter
	}
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := on.ReadDir(folder)
	if err != nil {
		return err
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	for _, e := range entries {
		base, ext, _ := strings.Cut(e.Name(), ".")
		half := strings.HasPrefix(base, "pack-") && !names[base+".idx"] && slices.Contains([]string{"pack", "rev", "mtimes", "bitmap"}, ext)
		if (half || strings.HasPrefix(base, "tmp_") || strings.HasPrefix(e.Name(), ".tmp-")) && left(e) {
			errs = append(errs, on.Remove(filepath.Join(folder, e.Name())))
		}
		if ext == "keep" && left(e) {
			errs = append(errs, sweepNote(on, filepath.Join(folder, e.Name())))
		}
	}
	objects := filepath.Join(dir, "objects")
	if entries, err = on.ReadDir(objects); err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "tmp_objdir-") && left(e) {
			errs = append(errs, on.RemoveAll(filepath.Join(objects, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// sweepNote removes the file that keeps a pack, if a push has made it.
func sweepNote(on files, name string) error {
	note, err := on.ReadFile(name)
	if err == nil && strings.HasPrefix(string(note), barerepo.PushNote) {
		err = on.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) { // its push has ended
		return nil
	}
	return err
}

// looseRefs counts refs that have a file of their own, up to where they are too many.
func looseRefs(on files, dir string) (n int, err error) {
	err = walk(on, filepath.Join(dir, "refs"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") {
			if n++; n >= fewRefs {
				return fs.SkipAll
			}
		}
		return nil
	})
	return n, err
}

// looseObjects counts objects that have a file of their own, and calls each for them if
// that is not nil. Nothing of ours makes any; an operator may.
func looseObjects(on files, dir string, each func(path string, at time.Time) error) (n int, err error) {
	folders, err := filepath.Glob(filepath.Join(dir, "objects", "[0-9a-f][0-9a-f]"))
	for _, folder := range folders {
		entries, rerr := on.ReadDir(folder)
		if rerr != nil {
			return n, rerr
		}
		for _, e := range entries {
			info, ierr := e.Info()
			if ierr != nil || strings.HasPrefix(e.Name(), "tmp_") {
				continue
			}
			n++
			if each == nil {
				continue
			}
			if err := each(filepath.Join(folder, e.Name()), info.ModTime()); err != nil {
				return n, err
			}
		}
	}
	return n, err
}

// removeEmpty removes empty files below a folder: logs of which nothing is left. Git
// makes them anew.
func removeEmpty(on files, folder string) error {
	err := walk(on, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() == 0 {
			err = on.Remove(path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there are no logs
	}
	return err
}
