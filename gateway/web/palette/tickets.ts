import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { ApiError } from '../api/client.ts'
import { ticketQuery } from '../api/users.ts'
import { type Command, toTicketCommand } from './commands.ts'

/** An event id is a UUID, or another long text without blanks. Client ids are none. */
const eventIdShape = /^(?!app_|m2m_)[\w.:-]{16,200}$/

/** The ticket of an app whose event id is the whole text. */
export function useTicketCommand(clientId: string | undefined, text: string) {
  const navigate = useNavigate()
  const { queryKey, queryFn } = ticketQuery(clientId ?? '', text)
  const ticket = useQuery({
    queryKey: [...queryKey, 'or none'],
    enabled: clientId !== undefined && eventIdShape.test(text),
    queryFn: async (context) => {
      try {
        return (await queryFn?.(context)) ?? null
      } catch (error) {
        // Most texts are no event id.
        if (error instanceof ApiError && error.status === 404) return null
        throw error
      }
    },
  })
  const commands: Command[] = ticket.data ? [toTicketCommand(navigate, ticket.data)] : []
  return { commands, isBusy: ticket.isFetching }
}
