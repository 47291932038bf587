import { useRef, useState } from 'react'

/** 128 random bits. `crypto.randomUUID` is missing on pages without https. */
const newKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('')

/**
 * Returns the Idempotency-Key of what a form holds, and a function that makes the next one. The key
 * stays the same until then, so that a repeated submission has no second effect.
 */
export function useIdempotencyKey(): readonly [key: string, renew: () => void] {
  const [key, setKey] = useState(newKey)
  return [key, () => setKey(newKey())]
}

/**
 * Returns a function that runs one submission at a time. The second click of a double click comes
 * before the button is drawn as disabled.
 */
export function useOneAtATime(): (submit: (onSettled: () => void) => void) => void {
  const isRunning = useRef(false)
  return (submit) => {
    if (isRunning.current) return
    isRunning.current = true
    submit(() => {
      isRunning.current = false
    })
  }
}
