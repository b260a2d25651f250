// Package dense contains compact containers for large numbers of small integers. They use a
// fraction of the memory of maps. Pages and Finder grow without copying their elements, so no
// insertion is slow.
package dense
