import { useEffect, useRef, useState } from 'react'

/** How long the text must be unchanged before it is searched for. */
const pauseMs = 200

/**
 * The text of a field that searches while the reader types. `shown` is the search in the address,
 * and `search` puts another one there. The text follows the address when something else changes it,
 * such as the browser's button for back.
 */
export function useSearchText(
  shown: string,
  search: (wanted: string) => void,
): readonly [string, (text: string) => void] {
  const [text, setText] = useState(shown)
  /** Searches that were sent and are not in the address yet. */
  const sent = useRef<string[]>([])
  const latest = useRef(search)
  useEffect(() => {
    latest.current = search
  })
  useEffect(() => {
    const index = sent.current.indexOf(shown)
    sent.current = index < 0 ? [] : sent.current.slice(index + 1)
    if (index < 0) setText(shown)
  }, [shown])
  useEffect(() => {
    const wanted = text.trim()
    if (wanted === (sent.current.at(-1) ?? shown)) return undefined
    const timer = setTimeout(() => {
      sent.current.push(wanted)
      latest.current(wanted)
    }, pauseMs)
    return () => clearTimeout(timer)
  }, [text, shown])
  return [text, setText]
}
