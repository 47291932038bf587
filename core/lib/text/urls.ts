/** The URL without the slashes at its end. In linear time, whatever strangers send: an expression tries anew at each slash. */
export function withoutFinalSlashes(url: string): string {
  let end = url.length
  while (url[end - 1] === '/') end--
  return url.slice(0, end)
}

/** The URL as it is, without a final slash and with one: settings and providers differ in it. */
export function slashForms(url: string): string[] {
  const bare = withoutFinalSlashes(url)
  return [url, bare, `${bare}/`]
}
