/**
 * The URL without trailing slashes. Runs in linear time for any input; a regular expression would
 * retry at each slash.
 */
export function withoutFinalSlashes(url: string): string {
  let end = url.length
  while (url[end - 1] === '/') end--
  return url.slice(0, end)
}

/**
 * The URL as given, without a final slash, and with one, because settings and providers differ in
 * it.
 */
export function slashForms(url: string): string[] {
  const bare = withoutFinalSlashes(url)
  return [url, bare, `${bare}/`]
}
