// Package pages serves the public pages of a GRASP server: a list of the hosted repositories, and a
// page for each repository with its README.
//
//	site := pages.New(pages.Config{
//		Identity: identity, Store: store, Announced: purgatory.Announced,
//		About: func() pages.About { return pages.About{Name: "grasp.example.com"} },
//	})
//	git, err := gitserve.New(repos, authority, gitserve.Config{Pages: site})
//	handler := git.Middleware(git.Page(http.HandlerFunc(site.Front)))
//
// The pages have no scripts and load nothing from other hosts except the operator's icon. Text of strangers
// is escaped, printable and isolated in direction.
package pages
