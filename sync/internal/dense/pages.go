package dense

const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// Pages is a list that is not copied as it grows, but for its first elements. The zero value is
// empty.
type Pages[T any] struct{ pages [][]T }

// Len is how many elements there are.
func (p *Pages[T]) Len() int {
	if len(p.pages) == 0 {
		return 0
	}
	last := len(p.pages) - 1
	return last*pageSize + len(p.pages[last])
}

// At returns where an element is until more are added.
func (p *Pages[T]) At(n uint32) *T { return &p.pages[n>>pageBits][n&(pageSize-1)] }

// Add adds an element at the end.
func (p *Pages[T]) Add(v T) {
	last := len(p.pages) - 1
	switch {
	case last < 0:
		p.pages = append(p.pages, nil)
		last = 0
	case len(p.pages[last]) == pageSize:
		p.pages = append(p.pages, make([]T, 0, pageSize))
		last++
	}
	p.pages[last] = append(p.pages[last], v)
}
