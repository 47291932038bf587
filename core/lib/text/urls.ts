/** The URL without the slashes at its end. In linear time, whatever strangers send: an expression tries anew at each slash. */
export function withoutFinalSlashes(url: string): string {
  let end = url.length
  while (url[end - 1] === '/') end--
  return url.slice(0, end)
}
