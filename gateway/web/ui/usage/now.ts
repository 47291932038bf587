import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { appQuery } from '../../api/queries.ts'
import { testClockQuery } from '../../api/usage.ts'

const tickMs = 30_000

/**
 * Returns the time of the app, which for a test app is that of its clock; undefined until it is
 * known. Ticks twice a minute.
 */
export function useAppNow(clientId: string): number | undefined {
  const app = useQuery(appQuery(clientId))
  const isTest = app.data?.isTest ?? false
  const clock = useQuery({ ...testClockQuery(clientId), enabled: isTest })
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), tickMs)
    return () => clearInterval(timer)
  }, [])
  if (app.data === undefined) return app.error ? now : undefined
  if (!isTest) return now
  if (clock.data === undefined) return clock.error ? now : undefined
  return now + clock.data.aheadSeconds * 1_000
}
