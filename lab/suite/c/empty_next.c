/* The function that stands elsewhere and does nothing. */
void NEXT(void);

void NEXT(void)
{
}
