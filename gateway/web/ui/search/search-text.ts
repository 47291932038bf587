import { useEffect, useRef, useState } from 'react'

/** How long the text must be unchanged before it is searched for. */
const pauseMs = 200

/**
 * The text of a field that searches while the reader types. `current` is the search in the address,
 * and `search` puts another one there. The text follows the address when something else changes it,
 * such as the browser's button for back.
 */
export function useSearchText(
  current: string,
  search: (query: string) => void,
): readonly [string, (text: string) => void] {
  const [text, setText] = useState(current)
  /** Searches that were sent and are not in the address yet. */
  const sent = useRef<string[]>([])
  const latest = useRef(search)
  useEffect(() => {
    latest.current = search
  })
  useEffect(() => {
    const index = sent.current.indexOf(current)
    sent.current = index < 0 ? [] : sent.current.slice(index + 1)
    if (index < 0) setText(current)
  }, [current])
  useEffect(() => {
    const query = text.trim()
    if (query === (sent.current.at(-1) ?? current)) return undefined
    const timer = setTimeout(() => {
      sent.current.push(query)
      latest.current(query)
    }, pauseMs)
    return () => clearTimeout(timer)
  }, [text, current])
  return [text, setText]
}
